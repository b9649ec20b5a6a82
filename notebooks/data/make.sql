-- How the excerpt was made from the files of the Fjelstul World Cup Database, in a folder with players.csv, squads.csv and tournaments.csv.
COPY (
    SELECT player_id, year(TRY_CAST(birth_date AS DATE))::SMALLINT AS birth_year, female = 1 AS female
    FROM 'players.csv' ORDER BY player_id
) TO 'worldcup_players.parquet' (COMPRESSION zstd, COMPRESSION_LEVEL 19);
COPY (
    SELECT tournament_id, year::SMALLINT AS year, tournament_name LIKE '%Women%' AS women, count_teams::SMALLINT AS teams
    FROM 'tournaments.csv' ORDER BY tournament_id
) TO 'worldcup_tournaments.parquet' (COMPRESSION zstd, COMPRESSION_LEVEL 19);
COPY (
    SELECT DISTINCT ON (player_id, tournament_id) player_id, tournament_id, position_name AS position
    FROM 'squads.csv' SEMI JOIN 'players.csv' USING (player_id) ORDER BY tournament_id, player_id
) TO 'worldcup_squads.parquet' (COMPRESSION zstd, COMPRESSION_LEVEL 19);
